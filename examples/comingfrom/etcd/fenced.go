package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Write puts a value, unless a greater token has been used for that key. It reports whether
// it did.
func Write(ctx context.Context, c *clientv3.Client, key, value string, token uint64) (bool, error) {
	fence := fmt.Sprintf("%020d", token) // etcd compares bytes: all are of one length
	greater := clientv3.Compare(clientv3.Value(key+"/fence"), ">", fence)
	reply, err := c.Txn(ctx).If(greater).Else(clientv3.OpPut(key, value), clientv3.OpPut(key+"/fence", fence)).Commit()
	return err == nil && !reply.Succeeded, err
}
