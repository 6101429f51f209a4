# Short cells with a pause for thought after each.
# label: active
# again: 50
x = sum(range(200000))
