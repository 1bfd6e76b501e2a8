"""Swagger UI as one page that asks nobody else for anything.

Its script and style are found beside this code, where a deployment has put them
(`flask_swagger_ui/dist`, the only part of that package that is used), and written into the page.
"""

import base64
import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from aws_lambda_powertools.event_handler import Response

from lamplighter.api.operations import HTML
from lamplighter.api.problems import Problem, Refusal
from lamplighter.api.requests import Request

PACKAGE: Final = "flask_swagger_ui"
FILES: Final = ("swagger-ui-bundle.js", "swagger-ui.css")
# Whatever stands in front of the page's own path stands in front of the description's too.
_START: Final = (
    'const root = location.pathname.replace(/(\\/v1)?\\/docs\\/?$/, "");'
    'SwaggerUIBundle({url: `${root}/v1/openapi.json`, dom_id: "#ui", deepLinking: true, '
    "validatorUrl: null});"
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Lamplighter API</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<div id="ui"></div>
<script>{script}</script>
<script>{start}</script>
</html>
"""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The page, and which scripts may run in it."""

    html: bytes
    policy: str

    @property
    def compressed(self) -> bytes:
        return _compressed(self.html)


def answer(request: Request) -> Response[bytes]:
    """The page; raises Refusal (404) where a deployment has left it out."""
    shown = page()
    if shown is None:
        detail = "Swagger UI is not part of this deployment; /v1/openapi.json has the description"
        raise Refusal(Problem(status=HTTPStatus.NOT_FOUND, detail=detail))
    takes_gzip = "gzip" in (request.header("Accept-Encoding") or "").lower()
    return Response(
        status_code=HTTPStatus.OK,
        content_type=f"{HTML}; charset=utf-8",
        body=shown.compressed if takes_gzip else shown.html,
        headers={
            "Cache-Control": "public, max-age=3600",
            "Content-Security-Policy": shown.policy,
            "Vary": "Accept-Encoding",
            **({"Content-Encoding": "gzip"} if takes_gzip else {}),
        },
    )


@cache
def page() -> Page | None:
    """The page, or None where there is no Swagger UI to be found."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        return None
    script, style = ((Path(folders[0]) / "dist" / name).read_text("utf-8") for name in FILES)
    # What a browser would take for the end of the script is the same to JavaScript with a `\\`.
    script = script.replace("</script", "<\\/script")
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in (script, _START))
    return Page(
        html=_PAGE.format(style=style, script=script, start=_START).encode(),
        policy=f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
    )


@cache
def _compressed(html: bytes) -> bytes:
    return gzip.compress(html, mtime=0)


def _digest(text: str) -> str:
    return base64.b64encode(sha256(text.encode()).digest()).decode()
