from pathlib import Path

import pytest

from slurm_reclaim.config.load import digest, load, load_with_origins
from slurm_reclaim.config.schema import Adopt, Config
from slurm_reclaim.errors import ConfigError


def write(folder: Path, text: str, name: str = "main.toml") -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def complaints(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text))
    return [line.replace(str(folder) + "/", "") for line in caught.value.complaints]


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(write(tmp_path, "")) == Config()


def test_values_arrive_as_seconds_bytes_and_rules(tmp_path: Path) -> None:
    config = load(
        write(
            tmp_path,
            'mode = "prod"\n[agent]\ninterval = "20s"\nghost_limit = "64MiB"\n'
            "[controller]\nport = 7000\n"
            '[[adopt]]\nname = "all"\npartition = ["gpu*"]\n[[adopt]]\nmanage = false\n',
        )
    )
    assert (config.mode, config.agent.interval, config.agent.ghost_limit) == ("prod", 20, 64 << 20)
    assert config.controller.port == 7000
    assert config.adopt == [Adopt(name="all", partition=["gpu*"]), Adopt(manage=False)]


def test_every_mistake_is_named_at_once_with_line_and_nearest_key(tmp_path: Path) -> None:
    text = """\
mode = "shadw"
[controller]
hots = "ctl"
port = 70000
[agent]
interval = 30
ghost_limit = 5
socket = "agent.sock"
criu = ""
min_free = "1GiB"
[slurm]
timeout = true
[[adopt]]
[[adopt]]
partiton = ["gpu"]
user = []
job_name = "x"
manage = "yes"
"""
    assert complaints(tmp_path, text) == [
        "main.toml:1: mode: 'shadw' is none of off, shadow, prod; did you mean 'shadow'?",
        "main.toml:3: controller.hots: unknown setting; did you mean controller.host?",
        "main.toml:4: controller.port: 70000 is too large; at most 65535",
        'main.toml:6: agent.interval: expected a duration with a unit, such as "30s", "45m" or '
        '"1h30m", not 30',
        'main.toml:7: agent.ghost_limit: expected a size with a unit, such as "64MiB" or "2TB", '
        "not 5",
        "main.toml:8: agent.socket: expected an absolute path, not 'agent.sock'",
        "main.toml:9: agent.criu: must not be empty",
        "main.toml:10: agent.min_free: unknown setting; did you mean min_free in [store]?",
        'main.toml:12: slurm.timeout: expected a duration with a unit, such as "30s", "45m" or '
        '"1h30m", not True',
        "main.toml:15: adopt[2].partiton: unknown setting; did you mean adopt[2].partition?",
        "main.toml:17: adopt[2].job_name: expected a list of texts, such as "
        '["gpu", "a100*"]',
        "main.toml:18: adopt[2].manage: expected true or false, not 'yes'",
        "main.toml:16: adopt[2].user: an empty list matches no job; leave the key out",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('store = "/x"', "store: is a table: write [store]"),
        ("[adopt]", "adopt: is a list of tables: write [[adopt]] above each"),
        ("[slurm]\nhost = 1", "slurm.host: unknown setting; did you mean host in [controller]?"),
        ("[controller]\nport = true", "controller.port: expected a whole number, not True"),
        ("[controller]\nhost = 3", "controller.host: expected a text in quotes, not 3"),
        ('[slurm]\ninterval = "0s"', "slurm.interval: 0s is too small; at least 1s"),
        ("x = ", "not valid TOML"),
    ],
)
def test_one_mistake_one_sentence(tmp_path: Path, text: str, what: str) -> None:
    (complaint,) = complaints(tmp_path, text)
    assert what in complaint


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "main.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(str(tmp_path / "main.toml"))


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    (complaint,) = complaints(tmp_path, '[agent]\ninterval = "1m"\nsilent_after = "90s"')
    assert "at least twice agent.interval" in complaint


def test_drop_ins_come_after_in_name_order_and_add_rules(tmp_path: Path) -> None:
    main = write(tmp_path, 'mode = "off"\n[[adopt]]\nname = "one"\n')
    write(tmp_path, 'mode = "prod"\n[[adopt]]\nname = "three"\n', "conf.d/20-b.toml")
    write(tmp_path, 'mode = "shadow"\n[[adopt]]\nname = "two"\n', "conf.d/10-a.toml")
    write(tmp_path, "nonsense = 1\n", "conf.d/30-c.toml.rpmsave")
    loaded = load_with_origins(main)
    assert loaded.config.mode == "prod"
    assert [rule.name for rule in loaded.config.adopt] == ["one", "two", "three"]
    assert loaded.origins["mode",].endswith("conf.d/20-b.toml:1")
    assert loaded.origins["adopt", "2"].endswith("conf.d/20-b.toml:2")


def test_mistakes_of_all_files_are_collected(tmp_path: Path) -> None:
    main = write(tmp_path, "a = 1\n")
    write(tmp_path, "not toml", "conf.d/x.toml")
    with pytest.raises(ConfigError) as caught:
        load(main)
    assert len(caught.value.complaints) == 2


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file") as caught:
        load(str(tmp_path / "none.toml"))
    assert caught.value.hint.startswith("make one with: reclaim config sample > ")
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "etc/none.toml"))
    assert f"mkdir -p {tmp_path}/etc && reclaim config sample >" in caught.value.hint


def test_a_section_added_to_the_end_of_the_sample(tmp_path: Path) -> None:
    (one,) = complaints(tmp_path, "[controller]\n# host = 'x'\n[controller]\nhost = 'ctl'\n")
    assert "write below the header that is there" in one
    (other,) = complaints(tmp_path, "not toml")
    assert "header" not in other


def test_the_digest_is_of_the_meaning_not_of_the_writing(tmp_path: Path) -> None:
    one = load(write(tmp_path, '[agent]\ninterval = "60s"\nsilent_after = "2m"'))
    same = load(write(tmp_path, '# x\nagent.silent_after = "120s"\nagent.interval = "1m"'))
    other = load(write(tmp_path, '[agent]\ninterval = "61s"\nsilent_after = "123s"'))
    assert digest(one) == digest(same) != digest(other)


def test_times_zones_and_signals_are_read_when_the_file_is(tmp_path: Path) -> None:
    text = """
[idle]
optional = ["gpu-pci"]
[cost]
shortest = "2h"
[[rule]]
hours = "Mon-Fri 8-18"
timezone = "Mars/Olympus"
optional = ["jupiter"]
[[desk]]
holidays = ["Christmas"]
sweeps = ["19:00", "noon"]
"""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text))
    said = "\n".join(caught.value.complaints)
    for part in (
        "idle.optional: 'gpu-pci' is no signal; did you mean 'gpu-pcie'?",
        "cost.shortest: must not be larger than cost.longest",
        "rule[1].hours: expected hours",
        "rule[1].timezone: unknown time zone 'Mars/Olympus'",
        "rule[1].optional: 'jupiter' is no signal; did you mean 'jupyter'?",
        "desk[1].holidays: expected a date",
        "desk[1].sweeps: expected a time such as",
    ):
        assert part in said
    assert len(caught.value.complaints) == 7


def test_a_rule_may_leave_out_what_it_does_not_change(tmp_path: Path) -> None:
    config = load(write(tmp_path, '[[rule]]\nuser = ["a"]\nwindow = "30m"\ngpu_floor = 2\n'))
    (rule,) = config.rule
    assert (rule.window, rule.gpu_floor, rule.grace, rule.io_floor) == (1800, 2.0, None, None)


@pytest.mark.parametrize(
    "place", ["bucket", "s3:/b", "s3://", "file:///x", "s3://b/../x y", "http://b/x", "s3://b//x"]
)
def test_a_remote_place_that_is_none(tmp_path: Path, place: str) -> None:
    (complaint,) = complaints(tmp_path, f'[store]\nremote = "{place}"')
    assert "s3://bucket/prefix" in complaint


def test_uploading_after_the_commit_needs_a_remote_place(tmp_path: Path) -> None:
    (complaint,) = complaints(tmp_path, '[store]\nupload = "after"')
    assert "store.remote" in complaint
    good = '[store]\nupload = "after"\nremote = "s3://b-1/lab/x"'
    assert load(write(tmp_path, good)).store.remote == "s3://b-1/lab/x"


def test_retention_that_could_never_come_true_is_named(tmp_path: Path) -> None:
    assert complaints(tmp_path, '[retention]\nnotice = "1h"\n') == [
        "main.toml: retention.notice_again: must not be larger than retention.notice"
    ]
    never = '[retention]\nhibernated = "90d"\n'
    (found,) = complaints(tmp_path, never)
    assert "no owner could ever be told" in found
    told = '[notice]\nchannels = ["hook"]\nenough = ["hook"]\n'
    assert load(write(tmp_path, never + told)).retention.hibernated == 90 * 86400
