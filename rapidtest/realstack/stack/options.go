package stack

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"time"
)

// CacheVariable is the environment variable that names the folder in which
// built programs are kept. Without it that is kubehold-realstack in the user's
// cache folder.
const CacheVariable = "KUBEHOLD_CACHE"

// Options say what to run. The zero value is the whole stack.
type Options struct {
	// APIServerOnly leaves all controllers out: etcd and kube-apiserver run,
	// with the CustomResourceDefinitions of JobSet, Trainer and Kueue installed.
	// Nothing converts between the versions of Kueue's kinds then.
	APIServerOnly bool
	// Versions says which versions to run.
	Versions Versions
	// SlowPods is how long a deleted pod takes to end. Zero is at once.
	SlowPods time.Duration
	// APIServerArgs are added to the command line of kube-apiserver, for
	// example "--request-timeout=5s".
	APIServerArgs []string
	// APIServerPort is the port of kube-apiserver. Zero is any that is free.
	APIServerPort int
	// Users are the names of users without any rights, to whom a test can bind
	// roles; see Stack.RESTConfigFor. Nil means user-a to user-e.
	Users []string
	// Dir is where the stack makes its temporary folder. Empty is the system's.
	Dir string
	// Cache is where built programs are kept. Empty is what CacheDir returns.
	Cache string
	// Progress is told what is going on. Nil is os.Stderr.
	Progress io.Writer
	// HealthTimeout is how long a component may take until it is healthy. Zero
	// is two minutes.
	HealthTimeout time.Duration
}

const defaultHealthTimeout = 2 * time.Minute

func (o Options) withDefaults() (Options, error) {
	o.Versions = o.Versions.withDefaults()
	o.Dir = cmp.Or(o.Dir, os.TempDir())
	o.HealthTimeout = cmp.Or(o.HealthTimeout, defaultHealthTimeout)
	if o.Users == nil {
		o.Users = []string{"user-a", "user-b", "user-c", "user-d", "user-e"}
	}
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	if o.Cache != "" {
		return o, nil
	}
	var err error
	o.Cache, err = CacheDir()
	return o, err
}

// CacheDir is the folder in which built programs are kept by default.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "kubehold-realstack"), nil
}
