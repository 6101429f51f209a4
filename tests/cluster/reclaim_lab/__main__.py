"""python3 -m reclaim_lab"""

import sys

from reclaim_lab.cli import main

sys.exit(main(sys.argv[1:]))
