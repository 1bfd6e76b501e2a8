"""`python -m infra.app`, as `make synth` and `make run` call it."""

from pathlib import Path

import pytest

from infra.app import main


def test_without_the_cdk_s_own_command_the_templates_are_in_cdk_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make synth` said so, and wrote them to a folder that nobody was told of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDK_OUTDIR", raising=False)

    main([])

    assert len([*(tmp_path / "cdk.out").glob("*.template.json")]) == 2
    assert str(tmp_path / "cdk.out") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("tasks_folder=no/such", "context tasks_folder: there is no folder "),
        ("tasks_module=no.such", "tasks module 'no.such': not found in "),
        ("stage=moon", "context stage: 'moon' is not one of local, dev, prod"),
        ("shell_owners=me", "shell_owners in stage 'dev'"),
    ],
)
def test_a_context_that_makes_no_sense_ends_it_with_one_line(context: str, said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--context", context])

    assert said in str(ended.value.code)
    assert len(str(ended.value.code).splitlines()) == 1


def test_a_context_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--context", "stage"])

    assert "'stage' is not NAME=VALUE" in capsys.readouterr().err
