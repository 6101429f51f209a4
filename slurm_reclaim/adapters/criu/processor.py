"""What of the CPU a restored program depends on: its features, and the size of its registers.

Programs choose code by the features once, when they start; without one of them they die of
SIGILL. A CPU with more than those is fine, since nobody asks again. But what XSAVE writes must have
the same size: the C library and CRIU's images keep buffers of that size (CRIU issue 3120).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import cache, lru_cache
from pathlib import Path

import sh

from slurm_reclaim.adapters.criu import images
from slurm_reclaim.errors import IntegrityError

AGAIN = 60.0  # seconds until a CRIU that could not tell is asked again
_failed: dict[str, float] = {}  # when it was, by time.monotonic

# What programs can't use: the kernel's own, virtualization, power, and how it is protected against
# the CPU's faults, which changes with a kernel's parameters. A name that is not here is needed.
_KERNEL_ONLY = """
acpi amd_lbr_v2 aperfmperf apic arat arch_capabilities arch_lbr arch_perfmon art auto_ibrs avic
bhi_ctrl bts bus_lock_detect cat_l2 cat_l3 cdp_l2 cdp_l3 constant_tsc cpb cpuid cpuid_fault cqm
cqm_llc cqm_mbm_local cqm_mbm_total cqm_occup_llc dca de debug_swap decodeassists ds_cpl dtes64
dtherm epb ept ept_ad est extapic extd_apicid flexpriority flush_l1d flushbyasid hfi hw_pstate hwp
hwp_act_window hwp_epp hwp_notify hwp_pkg_req hypervisor ibpb ibpb_brtype ibrs ibrs_enhanced ibs
ida intel_ppin intel_pt invpcid invpcid_single irperf itmt lbrv mba mca mce md_clear msr mtrr
nonstop_tsc npt nrip_save nx overflow_recov pae pat pausefilter pcid pconfig pdcm pebs
perfctr_core perfctr_llc perfctr_nb perfmon_v2 pfthreshold pge pln proc_feedback pse pse36 pti pts
rdt_a rep_good sbpb sev sev_es sev_snp skinit smap smca sme smep split_lock_detect srbds_ctrl ss
ssbd stibp succor svm svm_lock tdx_guest tdx_host_platform tm tm2 tme topoext tpr_shadow
tsc_adjust tsc_deadline_timer tsc_known_freq tsc_reliable tsc_scale umip v_spec_ctrl
v_vmsave_vmload vgif virt_ssbd vmcb_clean vme vmmcall vmx vnmi vpid wdt x2apic x2avic xen
xtopology xtpr
"""


@cache
def flags() -> str:
    """Names of the features of this node's CPU that programs can use, sorted, a space between."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                found = set(line.split(":", 1)[1].split()) - set(_KERNEL_ONLY.split())
                return " ".join(sorted(found))
    return ""


def xsave_size(criu: str) -> int:
    """Bytes that XSAVE writes at most, as CRIU found it; 0 where it does not say (not x86, or it
    can't be run). Each binary is asked until it has answered once."""
    if time.monotonic() < _failed.get(criu, -AGAIN) + AGAIN:
        return 0
    try:
        facts = os.stat(shutil.which(criu) or criu)
        return _xsave_size(criu, facts.st_dev, facts.st_ino, facts.st_mtime_ns)
    except (
        sh.ErrorReturnCode, sh.CommandNotFound, sh.TimeoutException, OSError, IntegrityError
    ):  # fmt: skip
        # Of a full disk, say: until the agent's end the node would be one that nothing fits on.
        _failed[criu] = time.monotonic()
        return 0


@lru_cache(maxsize=4)
def _xsave_size(criu: str, *_identity: int) -> int:
    with tempfile.TemporaryDirectory(prefix="slurm-reclaim-") as folder:
        words = ("cpuinfo", "dump", "--no-default-config", "-D", folder)
        sh.Command(criu)(*words, _env={"PATH": "/usr/sbin:/usr/bin"}, _timeout=30)
        for info in images.messages(Path(folder) / "cpuinfo.img", "CpuInfo"):
            for processor in info.x86_entry:
                return int(processor.xsave_size_max)
    return 0
