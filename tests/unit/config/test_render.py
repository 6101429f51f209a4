import re
import sys
from pathlib import Path

from slurm_reclaim.config import render
from slurm_reclaim.config.load import load, load_with_origins
from slurm_reclaim.config.schema import Config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]


def test_the_shipped_sample_is_up_to_date() -> None:
    assert (ROOT / "etc/slurm-reclaim.toml").read_text() == render.sample(), "run: make docs"


def test_the_sample_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(render.sample())
    assert load(str(tmp_path / "x.toml")) == Config()


def test_every_line_of_the_sample_may_be_switched_on(tmp_path: Path) -> None:
    """Except the empty lists of [[adopt]]: those are refused, a rule leaves them out."""
    live = re.sub(r"^# (?=[\[a-z]\S* ?=|\[\[)", "", render.sample(), flags=re.MULTILINE)
    live = re.sub(r"^\w+ = \[\]\n", "", live, flags=re.MULTILINE)
    assert 'criu = "/usr/sbin/criu"' in live.splitlines()
    assert "[[adopt]]" in live.splitlines()
    assert "adopt" in tomllib.loads(live)
    (tmp_path / "x.toml").write_text(live)
    config = load(str(tmp_path / "x.toml"))
    assert config.controller == Config().controller
    assert config.agent == Config().agent
    assert len(config.adopt) == 1


def test_settings_in_force_say_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('[agent]\ninterval = "20s"\n[[adopt]]\nuser = ["bob"]\n')
    shown = {s.key: s for s in render.in_force(load_with_origins(str(path)))}
    assert shown["agent.interval"].value == '"20s"'
    assert shown["agent.interval"].plain == 20
    assert shown["agent.interval"].origin == f"{path}:2"
    assert shown["mode"].origin == "default"
    assert shown["adopt[1].user"].value == '["bob"]'
    assert shown["adopt[1].user"].origin == f"{path}:3"
    assert "adopt[1].qos" not in shown
