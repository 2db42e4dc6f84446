"""What everything else rests on: refusals, registries, files, memory, numbers and words."""
