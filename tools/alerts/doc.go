// Package alerts has the alert rules of otel/alerts.yml be evaluated by Prometheus' own
// engine. It is a module of its own because of what that takes:
//
//	GOWORK=off go -C tools/alerts test .
package alerts
