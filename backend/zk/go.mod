module github.com/dlock-go/dlock/backend/zk

go 1.25.0

require (
	github.com/dlock-go/dlock v0.0.0
	github.com/go-zookeeper/zk v1.0.4
)

require golang.org/x/sys v0.36.0 // indirect

replace github.com/dlock-go/dlock => ../..
