"""Routes behind a token of their own: their readers have no login of Airflow."""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException

_SCHEME = "Bearer "


def app_behind_token(title: str, variable: str) -> FastAPI:
    """An application whose routes answer 404 unless a token is configured, and 401 for another one.

    :param variable: names its file, which is read each time. It may have several tokens, a line each, so that one can
        be replaced while readers still send the other.
    """

    def require_token(authorization: Annotated[str, Header()] = "") -> None:
        name = os.environ.get(variable)
        try:
            lines = Path(name).read_text().splitlines() if name else []
        except OSError as error:
            raise HTTPException(503, f"{variable} names a file that cannot be read: {error.strerror}.") from error
        tokens = [line.strip() for line in lines if line.strip()]
        if not tokens:
            raise HTTPException(404)
        given = authorization.removeprefix(_SCHEME) if authorization.startswith(_SCHEME) else ""
        if not any([hmac.compare_digest(given.encode(), token.encode()) for token in tokens]):
            raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})

    # The generated pages of an API would be public.
    return FastAPI(title=title, dependencies=[Depends(require_token)], docs_url=None, redoc_url=None, openapi_url=None)
