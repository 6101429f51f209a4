"""This checkout installed step by step, as docs/install.md has it.

The one file to change when the way of installing changes. Each step makes a layer of its own, made
again only when its part of the checkout has changed. A step whose part of the project is not in
the checkout is skipped, and said to be.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab import checkout, image, layers
from reclaim_lab.build_root import Build, build_in_root
from reclaim_lab.places import CHECKOUT
from reclaim_lab.shell import say


@dataclass(frozen=True)
class Step:
    name: str
    needs: str
    """Skipped when this is not in the checkout."""
    parts: tuple[str, ...]
    """Files and directories of the checkout that it uses."""
    commands: str
    """Run in a copy of these parts, inside the root."""


STEPS = [
    Step(
        "python",
        "pyproject.toml",
        ("pyproject.toml", "README.md", "LICENSE", "slurm_reclaim"),
        # --no-index: what the project needs came with the dependency layer, nothing else may.
        # Into Jupyter's venv as well: the hub imports the spawner mixin from its own interpreter.
        """
        /opt/slurm-reclaim-build/bin/pip wheel -q --no-deps --no-index --no-build-isolation \
            -w /tmp/wheels .
        /opt/jupyter/bin/pip install -q --no-deps --no-index /tmp/wheels/*.whl &
        /opt/slurm-reclaim/bin/pip install -q --no-deps --no-index /tmp/wheels/*.whl
        wait $!
        ln -sf /opt/slurm-reclaim/bin/reclaim /usr/bin/reclaim
        ln -sf /opt/slurm-reclaim/bin/reclaimd /usr/sbin/reclaimd
        ln -sf /opt/slurm-reclaim/bin/reclaim-agent /usr/sbin/reclaim-agent
        """,
    ),
    Step(
        "spank",
        "spank/Makefile",
        ("spank",),
        """
        make -s -j "$(nproc)" -C spank
        make -s -C spank install
        """,
    ),
    Step(
        "files",
        "systemd",
        ("systemd", "etc"),
        """
        put() { [ ! -e "$1" ] || install -D -m 0644 "$1" "$2/${1##*/}"; }
        put systemd/sysusers.d/slurm-reclaim.conf /usr/lib/sysusers.d
        put systemd/tmpfiles.d/slurm-reclaim.conf /usr/lib/tmpfiles.d
        put systemd/reclaimd.service /etc/systemd/system
        put systemd/reclaim-agent.service /etc/systemd/system
        put etc/slurm-reclaim.toml /etc/slurm-reclaim
        put etc/plugstack.conf.d/slurm-reclaim.conf /etc/slurm/plugstack.conf.d
        """,
    ),
]

# Only with --gpus: below the real nvidia-ml-py and cuda-bindings of the agent's environment.
GPU_STEP = Step(
    "simulated-gpu",
    "tests/gpu/Makefile",
    ("tests/gpu",),
    """
    make -s -C tests/gpu
    make -s -C tests/gpu install LIBDIR="/usr/lib/$(gcc -print-multiarch)"
    """,
)

_CONTROLLER_ONLY = ("usr/sbin/reclaimd", "etc/systemd/system/reclaimd.service")
_COMPUTE_ONLY = ("usr/sbin/reclaim-agent", "etc/systemd/system/reclaim-agent.service")


def left_out_on(node: str) -> tuple[str, ...]:
    return _COMPUTE_ONLY if node == "ctl" else _CONTROLLER_ONLY


# What a lab says differently from the defaults.
SETTINGS = """# The test cluster's own settings; the file above this directory has the defaults.
[controller]
host = "ctl"

[store]
path = "/shared/reclaim"

[slurm]
interval = "2s"

[agent]
interval = "2s"
silent_after = "10s"

[session]
private_tmp = "/var/tmp"
restore_wait = "30s"

[[adopt]]
name = "notebooks"
job_name = ["spawner-jupyterhub"]
"""


def base_layers(gpus: int) -> list[Path]:
    """Lower layers of every node, topmost first."""
    dependencies = checkout.project_table("project", "dependencies")
    build_requires = checkout.project_table("build-system", "requires")
    makers: list[Callable[[], Path]] = [
        lambda: image.dependency_layer(dependencies, build_requires),
        image.jupyter_layer,
        image.s3_server_layer,
        image.base_root,
    ]
    made = _at_once(makers)
    venv = made[:1]
    for name in ("s3", "gpu", "cuda") if gpus else ("s3",):
        extra = checkout.project_table("project", "optional-dependencies", name)
        venv.insert(0, image.extra_layer(name, extra, venv))
    made = [*venv, *made[1:]]
    return made


def installed_layers(lowers: list[Path], gpus: int) -> list[Path]:
    """Only what the installation adds, to be laid over a node's disk."""
    makers: list[Callable[[], Path]] = []
    for step in [*STEPS, GPU_STEP] if gpus else STEPS:
        if (CHECKOUT / step.needs).exists():
            makers.append(lambda step=step: _installed(step, lowers))  # type: ignore[misc]
        else:
            say(f"skipped the installation of {step.name}: no {step.needs} in this checkout")
    return _at_once(makers)


def _at_once(makers: list[Callable[[], Path]]) -> list[Path]:
    with ThreadPoolExecutor() as pool:
        return [made.result() for made in [pool.submit(make) for make in makers]]


def _installed(step: Step, lowers: list[Path]) -> Path:
    names = checkout.files(step.parts)
    script = "cp -a /mnt/checkout /tmp/checkout\ncd /tmp/checkout\n" + step.commands

    def build(place: Path) -> None:
        source = place / "checkout"
        checkout.copy_to(source, names)
        build_in_root(
            Build(lowers, script, place, shown={str(source): "/mnt/checkout"}),
            f"installing this checkout's {step.name} part",
        )

    key = layers.digest([path.name for path in lowers], script, checkout.content_digest(names))
    what = f"this checkout's {step.name} part"
    return layers.ensure(f"installed-{step.name}", key, build, what, keep_days=1)
