"""What is decided, as pure functions of what was seen, the configuration and a given `now`.

    sample -> idleness.fold -> Evidence
    session -> terms.Terms (which rule, which desk: mode, window, grace, floors)
    Evidence + Terms + now -> decision.decide -> Decision (active, unknown, quiet, idle, and why)
    Decision -> guards.first (why nothing may follow from it yet), limits (how much at once)

The controller, `reclaim replay` and `reclaim score` call the same functions.
"""
