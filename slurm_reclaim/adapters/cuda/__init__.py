"""The CUDA half of a session: `driver_child` (a program of its own) makes the calls of the driver's
checkpoint API, `driver` starts it, gives it one action at a time and ends it where it hangs.
`holders` finds what of the session has to do with a GPU, `cards` which cards are its own and what
lies on them, `blockers` names what can't be saved. `state` does the work in its order: lock all,
copy all to the host, see the cards free; and back. `half` joins it with the job's memory, for
SessionTree.

CRIU's own plugin for CUDA is never loaded: it hides its failures (`criu restore` ends well with
the GPU state still on the host), freezes what it has to lock, and knows no other card."""
