# A script on a terminal asks an API every 5 seconds and writes down what it said.
# label: active
# hard: yes
exec python3 typist.py 0 bash -c "while sleep 5; do curl -s http://ctl:8899/small > /dev/null; done"
