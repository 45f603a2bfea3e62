"""Messages that an application encrypts."""

from __future__ import annotations

import secrets
from pathlib import Path

import pulsar
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def encryption(folder: Path) -> dict[str, object]:
    """Options of a producer whose messages nobody can read: its private key is nowhere, the public one in a folder."""
    key = rsa.generate_private_key(65537, 2048)
    pem, info = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public = folder / f"{secrets.token_hex(4)}.pem"
    public.write_bytes(key.public_key().public_bytes(pem, info))
    return {"encryption_key": "k", "crypto_key_reader": pulsar.CryptoKeyReader(str(public), str(public))}
