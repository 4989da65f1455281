package schedule

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestTZDataVersion(t *testing.T) {
	write := func(dir, name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	debian, mac, bare, empty := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	write(debian, "Europe/Berlin", "TZif")
	write(debian, "tzdata.zi", "# version 2025b\n# This zic input file\n")
	write(mac, "Europe/Berlin", "TZif")
	write(mac, "+VERSION", "2026a\n")
	write(bare, "Europe/Berlin", "TZif")
	write(empty, "zoneinfo.zip", "PK")
	zip := filepath.Join(empty, "zoneinfo.zip")

	for _, tt := range []struct {
		name, override string
		places         []string
		want           string
	}{
		{"debian", "", []string{empty, debian, mac}, "2025b (" + debian + ")"},
		{"macOS", "", []string{mac, debian}, "2026a (" + mac + ")"},
		{"says nothing", "", []string{bare}, "unknown (" + bare + ")"},
		{"override", mac, []string{debian}, "2026a (" + mac + ")"},
		{"override with a zip", zip, []string{debian}, "unknown (" + zip + ")"},
		{"none", "", []string{empty}, "embedded in " + runtime.Version()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tzdataVersion(tt.override, tt.places); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if TZDataVersion() == "" {
		t.Error("no version for this machine")
	}
}
