# Many small files are read, one after the other.
# label: active
mkdir -p "$HOME/small" && (cd "$HOME/small" && for n in $(seq 300); do head -c 8000 /dev/zero > "f$n"; done)
exec python3 -c "
import pathlib, time
while True:
    for path in pathlib.Path('$HOME/small').iterdir():
        path.read_bytes()
        time.sleep(0.02)
"
