"""Ways to a person that start at the controller: mail, webhook, hooks; and the words for them.

One file a channel. Each gives one Delivery per try, is bounded in time and bytes, and raises
nothing for what the far side does.
"""
