"""Tokens of the local stack, checked as the API's authorizer would."""

import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import jwt
import pytest

from lamplighter.local.errors import CannotRun
from lamplighter.local.home import Home
from lamplighter.local.issuer import AUDIENCE, Issuer, mint
from lamplighter.local.server import listen, port_of, serving

HOUR = timedelta(hours=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(checkout=tmp_path, folder=tmp_path)


@pytest.fixture
def issuer(home: Home) -> Iterator[Issuer]:
    """One that answers."""
    listening = listen(0)
    issuer = Issuer.announce(home, port=port_of(listening))
    with serving(issuer.app(), listening):
        yield issuer


def published(issuer: Issuer) -> list[dict[str, str]]:
    """The key set, found by discovery."""
    with httpx.Client(trust_env=False) as client:
        found = client.get(f"{issuer.url}/.well-known/openid-configuration").json()
        assert found["issuer"] == issuer.url
        keys: list[dict[str, str]] = client.get(found["jwks_uri"]).json()["keys"]
    return keys


def accepted(token: str, issuer: Issuer) -> dict[str, object]:
    """The claims of a token that the published keys vouch for; KeyError for an unknown key."""
    keys = {key["kid"]: jwt.PyJWK(key) for key in published(issuer)}
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims: dict[str, object] = jwt.decode(
        token, key, ["RS256"], audience=AUDIENCE, issuer=issuer.url
    )
    return claims


def test_a_token_of_the_local_issuer_names_its_owner_and_passes_the_check(
    home: Home, issuer: Issuer
) -> None:
    claims = accepted(mint(owner="ada", ttl=HOUR, home=home), issuer)

    assert claims["sub"] == "ada"
    assert claims["scope"] == "jobs:read jobs:write ops:replay ops:limits admin"


def test_a_token_ends_after_its_time(issuer: Issuer) -> None:
    two_hours_ago = datetime.now(UTC) - 2 * HOUR

    stale = issuer.mint(owner="ada", ttl=HOUR, now=two_hours_ago)

    with pytest.raises(jwt.ExpiredSignatureError):
        accepted(stale, issuer)


def test_a_token_of_another_checkout_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    elsewhere = Home(checkout=tmp_path, folder=tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    Issuer.announce(elsewhere, port=4600)
    token = mint(owner="ada", home=elsewhere)

    with pytest.raises(KeyError):
        accepted(token, issuer)


def test_tokens_outlive_a_run_because_the_key_does(home: Home, issuer: Issuer) -> None:
    token = mint(owner="ada", home=home)

    again = Issuer.load(home)

    assert again.key.private_numbers() == issuer.key.private_numbers()
    assert accepted(token, issuer)["sub"] == "ada"


def test_the_key_is_readable_by_its_owner_alone(home: Home) -> None:
    Issuer.announce(home, port=4600)

    assert stat.S_IMODE((home.folder / "issuer.pem").stat().st_mode) == 0o600
    assert b"PRIVATE" in (home.folder / "issuer.pem").read_bytes()


def test_only_the_public_half_of_the_key_is_published(issuer: Issuer) -> None:
    [key] = published(issuer)

    assert set(key) == {"alg", "e", "kid", "kty", "n", "use"}


def test_the_next_run_asks_for_the_port_of_the_last(home: Home) -> None:
    assert Issuer.last_port(home) is None

    Issuer.announce(home, port=4600)

    assert Issuer.last_port(home) == 4600


def test_a_token_before_the_first_run_says_what_to_do(home: Home) -> None:
    with pytest.raises(CannotRun, match="make run"):
        mint(owner="ada", home=home)
