package dlock

import (
	"reflect"
	"testing"
)

// A hook that is set alone is told of calls, unless it is told of renewals.
func TestHasCallHooksKnowsEveryHook(t *testing.T) {
	ofRenewals := map[string]bool{"Renewed": true, "RenewalFailed": true}
	typ := reflect.TypeFor[Hooks]()
	for i := range typ.NumField() {
		var h Hooks
		f := reflect.ValueOf(&h).Elem().Field(i)
		f.Set(reflect.MakeFunc(f.Type(), nil))
		if name := typ.Field(i).Name; h.hasCallHooks() == ofRenewals[name] {
			t.Errorf("hasCallHooks with %s alone: %v", name, h.hasCallHooks())
		}
	}
}
