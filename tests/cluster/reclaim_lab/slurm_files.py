"""Slurm's configuration for a lab."""

from __future__ import annotations

from reclaim_lab import cgroups
from reclaim_lab.places import address, node_names

# More than small machines have: Slurm is told to believe it (config_overrides) and puts its cores
# onto the real ones in turn, for cpusets and affinity, too.
CPUS_PER_NODE = 4
MEMORY_PER_NODE = 8000
SHARDS_PER_GPU = 4
# Seconds. Slurm logs that it would like five times its MessageTimeout, and does as it is told.
UNKILLABLE_STEP_TIMEOUT = 15


def slurm_conf(cluster: str, nodes: int, gpus: int) -> str:
    gres, types = "", "gpu"
    if gpus:
        # Parts of GPUs, too: Slurm gives a card to jobs that want all of it or to those that share.
        shards = f"shard:{SHARDS_PER_GPU * gpus},mps:{100 * gpus}"
        gres, types = f" Gres=gpu:simulated:{gpus},{shards}", "gpu,shard,mps"
    return f"""# Written by tests/cluster/lab.
ClusterName={cluster}
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SlurmctldDebug=verbose
SlurmdDebug=debug
MailProg=/bin/true
MpiDefault=none

ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=task=5
PrologFlags=Contain
PlugStackConfig=/etc/slurm/plugstack.conf

SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=512
GresTypes={types}
# The nodes are shares of one machine and count its CPUs and memory more than once.
SlurmdParameters=config_overrides

SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=2,batch_sched_delay=0
PriorityType=priority/basic
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=300
SlurmctldTimeout=30
SlurmdTimeout=30
UnkillableStepTimeout={UNKILLABLE_STEP_TIMEOUT}

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
AccountingStorageTRES=gres/gpu

NodeName=n[1-{nodes}] CPUs={CPUS_PER_NODE} CoresPerSocket={CPUS_PER_NODE} \
RealMemory={MEMORY_PER_NODE}{gres} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=INFINITE State=UP
PartitionName=gpu Nodes=ALL MaxTime=INFINITE DefaultTime=INFINITE State=UP
"""


def slurmdbd_conf() -> str:
    # No password: MariaDB knows the account `slurm` by the uid at the other end of its socket.
    return """# Written by tests/cluster/lab.
DbdHost=ctl
SlurmUser=slurm
AuthType=auth/munge
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
PidFile=/run/slurm/slurmdbd.pid
LogFile=/var/log/slurmdbd.log
DebugLevel=info
"""


def cgroup_conf(gpus: int) -> str:
    version = cgroups.version()
    lines = [
        "# Written by tests/cluster/lab.",
        f"CgroupPlugin=cgroup/v{version}",
        "ConstrainCores=yes",
        "ConstrainRAMSpace=yes",
        f"ConstrainDevices={'yes' if gpus else 'no'}",
    ]
    if cgroups.swap_is_counted():
        # On a machine with swap a job over its memory would otherwise swap instead of dying.
        lines += ["ConstrainSwapSpace=yes", "AllowedSwapSpace=0"]
    if version == 2:
        lines += ["IgnoreSystemd=yes", "EnableControllers=yes"]
    return "\n".join(lines) + "\n"


def gres_conf(gpus: int) -> str:
    if not gpus:
        return "# Written by tests/cluster/lab: no GPUs.\n"
    # Backwards, as it may be on a real node: who takes Slurm's numbers for those of the files, or
    # for NVML's, finds the wrong card.
    cards = "".join(
        f"Name=gpu Type=simulated File=/dev/nvidia{number}\n" for number in reversed(range(gpus))
    )
    return (
        f"# Written by tests/cluster/lab.\n{cards}"
        f"Name=shard Count={SHARDS_PER_GPU * gpus}\nName=mps Count={100 * gpus}\n"
    )


def hosts(nodes: int) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{address(name)} {name}" for name in node_names(nodes)]
    return "\n".join(lines) + "\n"
