"""The `seedrl` command: local runs, evaluation, status. It starts services as processes, imports none."""
