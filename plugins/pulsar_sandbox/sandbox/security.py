"""Keys, certificates and tokens of a secure sandbox. For tests only: they are stored unencrypted in its folder."""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pulsar_fleet.cluster.errors import InvalidRequest

# `admin` and `broker` are super-users; the others have the rights that a test grants them.
ROLES = ("admin", "broker", "tenant-admin", "producer", "consumer", "nobody")
HOSTS = ("localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
VALID = datetime.timedelta(days=3650)


def create(folder: Path) -> None:
    """Write one authority, one broker certificate for all hosts, one token secret and a token for every role.

    Each cluster has a folder of its own, so that a credential or a trust file of another cluster is refused.

    Complete or absent: a second call leaves what is there alone.
    """
    if folder.exists():
        return
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_key = _private_key()
    authority = _certificate(f"authority-of-{folder.name}", authority_key, signed_by=None)
    broker_key = _private_key()
    broker = _certificate("broker", broker_key, signed_by=(authority, authority_key), hosts=HOSTS)
    secret = secrets.token_bytes(32)
    _write(partial / "ca.cert.pem", _pem(authority))
    _write(partial / "broker.cert.pem", _pem(broker))
    _write(partial / "broker.key.pem", _key_pem(broker_key))
    _write(partial / "secret.key", secret)
    for role in ROLES:
        _write(partial / f"{role}.jwt", jwt.encode({"sub": role}, secret, "HS256").encode())
    partial.rename(folder)


def share(folder: Path, clusters: Sequence[str]) -> None:
    """Give these clusters the files of the first one, so that what opens one of them opens all; a second call does
    nothing.
    """
    first, *others = clusters
    create(folder / first)
    for other in others:
        if not (folder / other).exists():
            (folder / other).symlink_to(first)


def token(folder: Path, role: str) -> str:
    """Read the token of a role."""
    if role not in ROLES:
        raise InvalidRequest(f"The sandbox has no role {role!r}; it has {', '.join(ROLES)}.")
    return (folder / f"{role}.jwt").read_text()


def _private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _certificate(
    name: str,
    key: rsa.RSAPrivateKey,
    *,
    signed_by: tuple[x509.Certificate, rsa.RSAPrivateKey] | None,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """Sign a certificate: an authority's own if `signed_by` is None, else one for a broker as server and client."""
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, issuer_key = (subject, key) if signed_by is None else (signed_by[0].subject, signed_by[1])
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if signed_by is None:
        # Python 3.13 and later refuse an authority whose certificate does not say that it may sign.
        builder = builder.add_extension(_signing_usage(), critical=True)
    else:
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


def _signing_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: rsa.RSAPrivateKey) -> bytes:
    # Pulsar reads PKCS#8 only.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(content)
