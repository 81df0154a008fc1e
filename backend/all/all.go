// Package all registers every backend of this module, for programs that take
// any of them by URL. Import it for its side effect:
//
//	import _ "github.com/dlock-go/dlock/backend/all"
package all

import (
	_ "github.com/dlock-go/dlock/backend/etcd"
	_ "github.com/dlock-go/dlock/backend/file"
	_ "github.com/dlock-go/dlock/backend/memory"
	_ "github.com/dlock-go/dlock/backend/pg"
	_ "github.com/dlock-go/dlock/backend/quorum"
	_ "github.com/dlock-go/dlock/backend/redis"
	_ "github.com/dlock-go/dlock/backend/zk"
)
