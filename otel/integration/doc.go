// Package integration tests package dlockotel on servers, and beside the telemetry of
// their drivers. It is a module of its own because of what that takes.
package integration
