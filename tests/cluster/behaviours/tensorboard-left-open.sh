# TensorBoard over ten runs; its page is open in a browser elsewhere and loads anew every 30 seconds.
# label: idle
# tools: yes
# page: 30 /data/environment /data/runs /data/plugins_listing /data/plugin/scalars/tags
. ./tools.sh
runs=$(mktemp -d)
python3 - "$runs" <<'PY'
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
for run in range(10):
    writer = EventFileWriter(f"{sys.argv[1]}/{run}")
    for step in range(2000):
        value = Summary.Value(tag="loss", simple_value=1.0 / (step + run + 1))
        writer.add_event(Event(step=step, summary=Summary(value=[value])))
    writer.close()
PY
exec python3 -m tensorboard.main --logdir "$runs" --host 0.0.0.0 --port "$((21000 + SLURM_JOB_ID))" \
    --load_fast=false
