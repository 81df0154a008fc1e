// Package alerts has the alert rules of otel/alerts.yml and the queries of
// otel/dashboard.json be evaluated by Prometheus' own engine. It is a module of its own because of what that takes:
//
//	GOWORK=off go -C tools/alerts test .
//	GOWORK=off go -C tools/alerts test -run Dashboard . -update   # draws otel/dashboard.svg
package alerts
