package calltest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Main makes this process the program alike where it was started under that name. Call it first in
// TestMain.
func Main() {
	if filepath.Base(os.Args[0]) != "alike" || len(os.Args) < 2 {
		return
	}
	do := uses[os.Args[1]]
	if do == nil {
		fmt.Println("alike knows no", os.Args[1])
		os.Exit(2)
	}
	if err := do(os.Args[2:]); err != nil {
		fmt.Printf("%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	os.Exit(0)
}

var uses = map[string]func(args []string) error{
	"make-objects": func(args []string) error { return MakeObjects(args[0]) },
	"call": func(args []string) error {
		came, err := Call(args[0])
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(came))
	},
	"show": func(args []string) error {
		seen := make([]string, len(args))
		for i, at := range args {
			var err error
			if seen[i], err = Show(at); err != nil {
				return err
			}
		}
		return json.NewEncoder(os.Stdout).Encode(seen)
	},
	"fsx": func(args []string) error {
		var numbers [3]int
		for i := range numbers {
			var err error
			if numbers[i], err = strconv.Atoi(args[i]); err != nil {
				return err
			}
		}
		return actRandomly(args[3], uint64(numbers[0]), numbers[1], numbers[2])
	},
	"set-attribute": func(args []string) error {
		value := []byte(args[2])
		if digits, binary := strings.CutPrefix(args[2], "0x"); binary {
			var err error
			if value, err = hex.DecodeString(digits); err != nil {
				return err
			}
		}
		return unix.Lsetxattr(args[0], args[1], value, 0)
	},
	"remove-attribute": func(args []string) error { return unix.Lremovexattr(args[0], args[1]) },
	"rename":           func(args []string) error { return pairs["rename"](args[0], args[1]) },
	"exchange":         func(args []string) error { return pairs["exchange"](args[0], args[1]) },
	"no-replace":       func(args []string) error { return pairs["no replace"](args[0], args[1]) },
	"link":             func(args []string) error { return pairs["link"](args[0], args[1]) },
	"unlinked":         one(useUnlinked),
	"reader":           one(readBeforeAndAfter),
	"map":              one(mapTwice),
	"lock":             one(lockTwice),
	"no-name":          one(useNoName),
	"socket":           one(serveOnce),
	"connect":          one(connect),
	"holes":            one(listHoles),
	"watch":            one(watch),
	"walk":             one(removeWhileListing),
}

func one(do func(at string) error) func([]string) error {
	return func(args []string) error { return do(args[0]) }
}
