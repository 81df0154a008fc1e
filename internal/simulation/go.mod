module github.com/dlock-go/dlock/internal/simulation

go 1.26.0

require (
	github.com/dlock-go/dlock v0.0.0
	github.com/dlock-go/dlock/backend/redis v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/yuin/gopher-lua v1.1.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/dlock-go/dlock => ../..
	github.com/dlock-go/dlock/backend/redis => ../../backend/redis
)
