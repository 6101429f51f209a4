"""The journal: sessions, events and intents in a database, durable before a call returns."""
