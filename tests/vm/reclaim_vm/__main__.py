from __future__ import annotations

import sys

from reclaim_vm.cli import main

sys.exit(main(sys.argv[1:]))
