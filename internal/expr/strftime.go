package expr

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// layouts are the conversions of C's strftime that a layout of package time can express, in the C locale.
var layouts = map[byte]string{
	'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'd': "02", 'e': "_2", 'F': "2006-01-02", 'H': "15",
	'I': "03", 'j': "002", 'M': "04", 'm': "01", 'p': "PM", 'S': "05", 'T': "15:04:05", 'Y': "2006", 'y': "06",
	'Z': "MST", 'z': "-0700",
}

// strftime formats a time with the conversions of C's strftime, as ISO C and POSIX define them.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			return "", fmt.Errorf("strftime: the format ends in %%; write %%%% for a percent sign")
		}
		year, week := t.ISOWeek()
		switch c := format[i]; c {
		case '%':
			b.WriteByte('%')
		case 'G':
			fmt.Fprintf(&b, "%04d", year)
		case 'V':
			fmt.Fprintf(&b, "%02d", week)
		case 'u':
			b.WriteString(strconv.Itoa((int(t.Weekday())+6)%7 + 1))
		case 'w':
			b.WriteString(strconv.Itoa(int(t.Weekday())))
		case 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		default:
			layout, known := layouts[c]
			if !known {
				return "", fmt.Errorf("strftime: there is no %%%c; known are %%Y %%m %%d %%H %%M %%S %%F %%T %%y %%e %%j %%I %%p %%a %%A %%b %%B %%G %%V %%u %%w %%s %%z %%Z %%%%", c)
			}
			b.WriteString(t.Format(layout))
		}
	}
	return b.String(), nil
}
