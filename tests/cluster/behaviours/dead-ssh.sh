# A login by ssh whose client is gone without a word: sshd and the shell at its prompt stay.
# label: idle
# login: dead
exec sleep infinity
