"""This checkout installed into a root of its own, step by step as docs/install.md has it.

The one file to change when the way of installing changes. A step whose part of the project is
not in the checkout is skipped, and said to be.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reclaim_lab import checkout, image, layers
from reclaim_lab.build_root import Build, build_in_root
from reclaim_lab.places import CHECKOUT
from reclaim_lab.shell import say

# What must be in the checkout for a step -> what the step runs, in a copy of it at /tmp/checkout.
STEPS: dict[str, str] = {
    # `--no-index`: what the project needs came with the dependency layer, nothing else may.
    "pyproject.toml": """
        /opt/slurm-reclaim-build/bin/pip wheel -q --no-deps --no-index --no-build-isolation \
            -w /tmp/wheels .
        /opt/slurm-reclaim/bin/pip install -q --no-deps --no-index /tmp/wheels/*.whl
        ln -sfn /opt/slurm-reclaim/bin/reclaim /usr/bin/reclaim
        ln -sfn /opt/slurm-reclaim/bin/reclaimd /usr/sbin/reclaimd
        ln -sfn /opt/slurm-reclaim/bin/reclaim-agent /usr/sbin/reclaim-agent
        # The hub imports the spawner mixin from its own interpreter.
        /opt/jupyter/bin/pip install -q --no-deps --no-index /tmp/wheels/*.whl
    """,
    "spank/Makefile": """
        make -s -C spank install
    """,
    "systemd": """
        install -D -m 644 -t /usr/lib/systemd/system systemd/*.service
    """,
    "systemd/sysusers.d": """
        install -D -m 644 -t /usr/lib/sysusers.d systemd/sysusers.d/*.conf
    """,
    "systemd/tmpfiles.d": """
        install -D -m 644 -t /usr/lib/tmpfiles.d systemd/tmpfiles.d/*.conf
    """,
    "etc": """
        [ ! -e etc/slurm-reclaim.toml ] ||
            install -D -m 644 -t /etc/slurm-reclaim etc/slurm-reclaim.toml
        for snippet in $(find etc -path '*plugstack*' -name '*.conf'); do
            install -D -m 644 -t /etc/slurm/plugstack.conf.d "$snippet"
        done
    """,
}

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


def base_layers() -> list[Path]:
    """Lower layers of every node, topmost first."""
    base = image.base_root()
    with ThreadPoolExecutor() as pool:
        jupyter = pool.submit(image.jupyter_layer, base)
        dependencies = pool.submit(
            image.dependency_layer,
            base,
            checkout.project_table("project", "dependencies"),
            checkout.project_table("build-system", "requires"),
        )
        return [dependencies.result(), jupyter.result(), base]


def installed_layer(lowers: list[Path]) -> Path:
    """Only what the installation added, to be laid over a node's disk."""
    names = checkout.files()
    script = "cp -a /mnt/checkout /tmp/checkout\ncd /tmp/checkout\n"
    for needs, commands in STEPS.items():
        if (CHECKOUT / needs).exists():
            script += commands
        else:
            say(f"skipped an installation step: there is no {needs} in this checkout")

    def build(place: Path) -> None:
        source = place / "checkout"
        checkout.copy_to(source, names)
        build_in_root(
            Build(lowers, script, place, shown={str(source): "/mnt/checkout"}),
            "installing this checkout",
        )

    key = layers.digest([path.name for path in lowers], script, checkout.content_digest(names))
    return layers.ensure("installed", key, build, "the installation of this checkout")
