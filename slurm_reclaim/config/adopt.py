"""Which batch jobs are managed: the user's own word first, then the rules, else nobody.

Pure: called by the agent at every job start with what the SPANK plugin told it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from slurm_reclaim.config.schema import Adopt

# Which fact a key of [[adopt]] is compared with; gres is put together from several.
_FACTS = {
    "partition": "SLURM_JOB_PARTITION",
    "qos": "SLURM_JOB_QOS",
    "account": "SLURM_JOB_ACCOUNT",
    "user": "SLURM_JOB_USER",
    "job_name": "SLURM_JOB_NAME",
}


def decide(rules: Sequence[Adopt], facts: Mapping[str, str], option: str) -> tuple[bool, str]:
    """Whether the job is managed and the sentence that says why. `facts` are the SLURM_* values
    of docs/protocol.md; `option` is what `sbatch --reclaim=` said: "on", "off" or ""."""
    if option == "off":
        return False, "the user said --reclaim=off"
    obstacle = unmanageable(facts)
    if option == "on":
        if obstacle:
            return False, f"the user said --reclaim=on, but {obstacle}"
        return True, "the user said --reclaim=on"
    if obstacle:
        return False, obstacle
    for number, rule in enumerate(rules, 1):
        matched = _match(rule, facts)
        if matched is not None:
            verb = "is managed" if rule.manage else "is left alone"
            return rule.manage, f"{verb} by {_name(rule, number)}: {matched}"
    if not rules:
        return False, "no [[adopt]] rule is configured, and --reclaim=on was not given"
    return False, "no [[adopt]] rule matches, and --reclaim=on was not given"


def unmanageable(facts: Mapping[str, str]) -> str:
    """Why a job of this shape can't be managed at all; empty if it can."""
    # Of another job it is what this one was submitted in (its environment comes along).
    leader = facts.get("SLURM_JOB_ID_HET_GROUP_0", facts.get("SLURM_JOB_ID"))
    het = facts.get("SLURM_HET_SIZE", "0") not in ("", "0", "1")
    if het and leader == facts.get("SLURM_JOB_ID"):
        return "it is a heterogeneous job; only single-node batch jobs can be hibernated"
    nodes = facts.get("SLURM_JOB_NUM_NODES", "1")
    if nodes not in ("", "1"):
        return f"it runs on {nodes} nodes; only single-node batch jobs can be hibernated"
    return ""


def granted(facts: Mapping[str, str]) -> list[str]:
    """Names of the GPUs a job was given, in every way that a pattern may name them. The type is
    known only where the job asked for it with --gpus=TYPE:N or the like."""
    # These two Slurm takes away from a job that has none. The others may be those of the job in
    # which it was submitted (seen with 24.11).
    if not facts.get("SLURM_JOB_GPUS") and facts.get("SLURM_GPUS_ON_NODE", "0") in ("", "0"):
        return []
    names: list[str] = []
    for key in sorted(facts):
        if not key.startswith("SLURM_GPUS") or facts[key] in ("", "0"):
            continue
        for part in facts[key].split(","):
            kind, _, _count = part.rpartition(":")
            names += ["gpu", f"gpu:{part}", *([f"gpu:{kind}"] if kind else [])]
    # The indices of the GPUs, so "0" is one GPU and not none.
    if facts.get("SLURM_JOB_GPUS"):
        names.append("gpu")
    names = list(dict.fromkeys(names))
    return names + [f"gres/{name}" for name in names]


def _match(rule: Adopt, facts: Mapping[str, str]) -> str | None:
    """What matched, for the reason; None where a given key did not."""
    seen: list[str] = []
    for key, fact in _FACTS.items():
        patterns: list[str] = getattr(rule, key)
        if not patterns:
            continue
        value = facts.get(fact, "")
        if not value or not any(fnmatchcase(value, pattern) for pattern in patterns):
            return None
        seen.append(f"{key} {value}")
    if rule.gres:
        hit = next((n for n in granted(facts) if any(fnmatchcase(n, p) for p in rule.gres)), None)
        if hit is None:
            return None
        seen.append(f"gres {hit}")
    return ", ".join(seen) or "it matches every job"


def _name(rule: Adopt, number: int) -> str:
    return f"rule {rule.name!r}" if rule.name else f"[[adopt]] rule {number}"
