# A cell that waits in input() for an owner who left: the kernel says busy.
# label: idle
# stdin: yes
input("continue? ")
