"""Packages as OpenVINO takes them: its intermediate representation (IR), and an EPContext node around one."""
