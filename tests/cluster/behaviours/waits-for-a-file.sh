# A loop that looks for a file which never comes.
# label: idle
while [ ! -e "$HOME/never" ]; do sleep 5; done
