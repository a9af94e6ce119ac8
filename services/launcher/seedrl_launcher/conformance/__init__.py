"""`seedrl check-client`: plays broker and learner for somebody's client and holds what it does against the protocol."""
