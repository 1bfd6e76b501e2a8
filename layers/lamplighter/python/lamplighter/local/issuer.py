"""A token issuer for the local stack, in the place of Cognito, Auth0 or your own.

The API behind it is the deployed one: it fetches the keys by OpenID Connect discovery and
checks each token's signature, issuer, audience and time.
"""

import base64
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lamplighter.api.access import Scope
from lamplighter.local.errors import CannotRun
from lamplighter.local.home import Home

AUDIENCE: Final = "lamplighter"
ALGORITHM: Final = "RS256"  # the only family that an HTTP API's JWT authorizer accepts
KEY_BITS: Final = 2048
DEFAULT_TTL: Final = timedelta(hours=12)
# Past a clock that was set back a little between the minting and the check.
ISSUED_AGO: Final = timedelta(seconds=5)


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """Signs tokens in the name of a URL, and publishes the key to check them with."""

    url: str
    key: rsa.RSAPrivateKey

    @classmethod
    def load(cls, home: Home) -> "Issuer":
        """The one that a run in this folder announced; it need not be running.

        Raises CannotRun if there never was one.
        """
        try:
            url = json.loads(_announcement(home).read_text())["issuer"]
            return cls(url=url, key=_read_key(_key_file(home)))
        except FileNotFoundError:
            raise CannotRun(f"no run has made an issuer in {home.folder} yet: make run") from None

    @classmethod
    def announce(cls, home: Home, *, port: int) -> "Issuer":
        """The issuer at this port of 127.0.0.1, with the folder's key, made if there is none."""
        path = _key_file(home)
        if not path.exists():
            _write_key(path)
        issuer = cls(url=f"http://127.0.0.1:{port}", key=_read_key(path))
        _announcement(home).write_text(json.dumps({"issuer": issuer.url}))
        return issuer

    @staticmethod
    def last_port(home: Home) -> int | None:
        """That of the last run: as long as it stays, so does the template, which names it."""
        try:
            return int(json.loads(_announcement(home).read_text())["issuer"].rpartition(":")[2])
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def mint(self, *, owner: str, ttl: timedelta, now: datetime) -> str:
        """A bearer token whose `sub` is the owner, good for everything from `now` for `ttl`."""
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": owner,
            "scope": " ".join(Scope),
            "iat": now - ISSUED_AGO,
            "exp": now + ttl,
            "jti": secrets.token_hex(8),
        }
        return jwt.encode(claims, self.key, ALGORITHM, headers={"kid": self._published()["kid"]})

    def app(self) -> Starlette:
        """Serves the discovery document and the key set, to anyone: both are public."""
        keys = f"{self.url}/.well-known/jwks.json"

        def configuration(_request: Request) -> JSONResponse:
            return JSONResponse(
                {
                    "issuer": self.url,
                    "jwks_uri": keys,
                    "id_token_signing_alg_values_supported": [ALGORITHM],
                    "response_types_supported": ["token"],
                    "subject_types_supported": ["public"],
                }
            )

        def key_set(_request: Request) -> JSONResponse:
            return JSONResponse({"keys": [self._published()]})

        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", configuration),
                Route("/.well-known/jwks.json", key_set),
            ]
        )

    def _published(self) -> dict[str, str]:
        public = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        required = {name: public[name] for name in ("e", "kty", "n")}
        return {**required, "alg": ALGORITHM, "use": "sig", "kid": _thumbprint(required)}


def mint(*, owner: str, ttl: timedelta = DEFAULT_TTL, home: Home | None = None) -> str:
    """A bearer token for the local stack, good at once and in later runs too.

    Raises CannotRun if no run has made an issuer yet.
    """
    return Issuer.load(home or Home.of()).mint(owner=owner, ttl=ttl, now=datetime.now(UTC))


def _thumbprint(required: dict[str, str]) -> str:
    """RFC 7638: the same for the same key, whoever computes it."""
    canonical = json.dumps(required, sort_keys=True, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()


def _announcement(home: Home) -> Path:
    return home.folder / "issuer.json"


def _key_file(home: Home) -> Path:
    return home.folder / "issuer.pem"


def _write_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # Whole or not there, and never readable by others, not even for a moment.
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    unfinished.rename(path)


def _read_key(path: Path) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise CannotRun(f"{path} holds another kind of key; remove it")
    return key
