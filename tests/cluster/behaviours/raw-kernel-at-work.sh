# A process with a kernel's command line that computes, without a server.
# label: active
exec -a ipykernel_launcher python3 burn.py 0.15
