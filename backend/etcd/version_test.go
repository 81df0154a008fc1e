package etcd

import (
	"strings"
	"testing"
)

func TestVersionFault(t *testing.T) {
	for version, want := range map[string]string{
		"3.3.27": "15247", "3.4.30": "15247", "3.4.31": "", "3.5.0": "13766", "3.5.2": "13766", "3.5.3": "15247",
		"3.5.12": "15247", "3.5.13": "", "3.5.13-rc.0": "", "3.6.0": "", "3.7.3": "", "4.0.0": "", "": "", "odd": "",
	} {
		if got := versionFault(version); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
