"""What every function finds under /opt/python: our code, its dependencies, the user's tasks."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from aws_cdk import IgnoreMode
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bundling import BuildFailed, LambdaTarget, Layer, Wheels
from infra.paths import CODE_LAYER, RUNTIME_REQUIREMENTS

# What people type, and what stands in for AWS: no function imports it.
NOT_IN_LAMBDA = ("cli", "client", "local", "memory", "sim", "testing.py", "testing")


@dataclass(frozen=True, kw_only=True)
class TaskSource:
    """The user's tasks: what lies in `folder` goes on the workers' import path.

    `requirements` are installed beside it: pinned, with hashes, and without what Lamplighter's
    own layer holds already.
    """

    folder: Path
    module: str
    """Imported by the worker at its start, `mytasks.billing` for `<folder>/mytasks/billing.py`."""
    requirements: Path | None = None

    def __post_init__(self) -> None:
        file = self.folder.joinpath(*self.module.split("."))
        if not (file.with_suffix(".py").is_file() or (file / "__init__.py").is_file()):
            raise ValueError(f"tasks module {self.module!r}: not found in {self.folder}")


def _swagger() -> Layer:
    """The two files that a page needs, where lamplighter.api.swagger looks for them."""
    package = "flask_swagger_ui"
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise BuildFailed(f"{package} is not installed: make setup")
    files = ("swagger-ui-bundle.js", "swagger-ui.css")
    return Layer(
        folder=Path(found.submodule_search_locations[0]).parent,
        only=tuple(f"{package}/dist/{name}" for name in files),
    )


class SchedulerLayers(Construct):
    def __init__(
        self, scope: Construct, id: str, *, tasks: TaskSource, target: LambdaTarget
    ) -> None:
        super().__init__(scope, id)
        self._target = target
        code = lambda_.Code.from_asset(
            str(CODE_LAYER),
            exclude=[
                *(f"/python/lamplighter/{name}" for name in NOT_IN_LAMBDA),
                "__pycache__",
                "*.egg-info",
            ],
            ignore_mode=IgnoreMode.GIT,
        )
        dependencies = Layer(wheels=Wheels(requirements=RUNTIME_REQUIREMENTS, target=target))
        wheels = (
            Wheels(requirements=tasks.requirements, target=target) if tasks.requirements else None
        )
        own = Layer(wheels=wheels, folder=tasks.folder)
        self.common = [
            self._version("Code", code, "Lamplighter"),
            self._version("Dependencies", dependencies.code(), "What Lamplighter imports"),
        ]
        self.tasks = self._version("Tasks", own.code(), f"Tasks of {tasks.module}")
        self.swagger = self._version("Swagger", _swagger().code(), "Swagger UI, for /docs")

    def _version(self, id: str, code: lambda_.Code, description: str) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            id,
            code=code,
            description=description,
            compatible_runtimes=[self._target.runtime],
            compatible_architectures=[self._target.architecture],
        )
