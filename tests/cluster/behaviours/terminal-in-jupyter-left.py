# A Jupyter server with a terminal in which nobody types.
# label: idle
# terminal: yes
z = 1
