package dlock_test

import (
	"reflect"
	"testing"

	"github.com/dlock-go/dlock"
)

// JoinHooks forgets no hook: a set that has them all is joined to one that has none.
func TestJoinHooksKnowsEveryHook(t *testing.T) {
	var all dlock.Hooks
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
			out := make([]reflect.Value, f.Type().NumOut())
			for j := range out {
				out[j] = reflect.Zero(f.Type().Out(j))
			}
			return out
		}))
	}
	joined := reflect.ValueOf(dlock.JoinHooks(dlock.Hooks{}, all))
	for i := range joined.NumField() {
		if joined.Field(i).IsNil() {
			t.Errorf("JoinHooks forgets %s", joined.Type().Field(i).Name)
		}
	}
}
