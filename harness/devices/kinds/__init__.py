"""The kinds of device spec: one file each, registered in :data:`harness.devices.kinds.table.KINDS`."""
