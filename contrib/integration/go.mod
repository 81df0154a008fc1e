module github.com/dlock-go/dlock/contrib/integration

go 1.26.0

require (
	github.com/caddyserver/certmagic v0.25.6
	github.com/dlock-go/dlock v0.0.0
	github.com/dlock-go/dlock/backend/redis v0.0.0
	github.com/dlock-go/dlock/contrib/certmagiclock v0.0.0
	github.com/dlock-go/dlock/contrib/gocronlock v0.0.0
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/uuid v1.6.0
	github.com/jonboulle/clockwork v0.5.0
	github.com/letsencrypt/pebble/v2 v2.10.1
	github.com/mholt/acmez/v3 v3.1.7
	github.com/redis/go-redis/v9 v9.22.0
	go.uber.org/zap v1.28.0
)

require (
	github.com/caddyserver/zerossl v0.1.6 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-jose/go-jose/v4 v4.1.4 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/letsencrypt/challtestsrv v1.4.2 // indirect
	github.com/libdns/libdns v1.1.1 // indirect
	github.com/miekg/dns v1.1.73 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/zeebo/blake3 v0.2.4 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap/exp v0.3.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace (
	github.com/dlock-go/dlock => ../..
	github.com/dlock-go/dlock/backend/redis => ../../backend/redis
	github.com/dlock-go/dlock/contrib/certmagiclock => ../certmagiclock
	github.com/dlock-go/dlock/contrib/gocronlock => ../gocronlock
)
