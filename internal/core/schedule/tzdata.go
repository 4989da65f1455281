package schedule

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// databases are where Go looks for the zone database on Unix, after $ZONEINFO
// and before the copy in this binary (time.LoadLocation).
var databases = []string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"}

// TZDataVersion says which zone database the process uses: its IANA release
// and where it lies, as in "2025b (/usr/share/zoneinfo)". A database that does not
// tell its release is "unknown (…)". The copy in the binary is the one that this
// release of Go ships: "embedded in go1.26.8".
//
// The system's database wins over the copy, so that an update of the system
// updates the zones; set ZONEINFO to a file such as Go's lib/time/zoneinfo.zip
// to pin one.
var TZDataVersion = sync.OnceValue(func() string {
	return tzdataVersion(os.Getenv("ZONEINFO"), databases)
})

func tzdataVersion(override string, places []string) string {
	if override != "" {
		places = append([]string{override}, places...)
	}
	for _, place := range places {
		info, err := os.Stat(place)
		switch {
		case err != nil:
		case !info.IsDir(): // a zip, which only ZONEINFO may name
			return "unknown (" + place + ")"
		default:
			if _, err := os.Stat(filepath.Join(place, "Europe", "Berlin")); err == nil {
				return release(place) + " (" + place + ")"
			}
		}
	}
	return "embedded in " + runtime.Version()
}

// release reads the IANA release from the files in which distributions keep it.
func release(place string) string {
	for _, name := range []string{"+VERSION", "tzdata.zi"} {
		file, err := os.Open(filepath.Join(place, name))
		if err != nil {
			continue
		}
		line, _ := bufio.NewReaderSize(file, 64).ReadString('\n')
		file.Close()
		line = strings.TrimSpace(strings.TrimPrefix(line, "# version "))
		if len(line) >= 5 && len(line) <= 12 && line[0] == '2' {
			return line
		}
	}
	return "unknown"
}
