package stack

import (
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubehold/kubehold/rapidtest/realstack/internal/pki"
)

// admin is the user of Stack.RESTConfig.
const admin = "admin"

// mastersGroup is the group that may do everything.
const mastersGroup = "system:masters"

// A layout is where the parts of one stack are: folders, ports and users.
type layout struct {
	dir       string
	ports     ports
	authority *pki.Authority
	tokens    map[string]string // by user
	options   Options
}

// ports are those on the loopback address. They stay the same when a component
// is started again.
type ports struct {
	etcd, etcdPeer, apiServer       int
	controllerManager, scheduler    int
	jobSetHealth, jobSetWebhook     int
	trainerHealth, trainerWebhook   int
	kueueHealth, kueueWebhook, kwok int
}

func newLayout(dir string, options Options) (*layout, error) {
	l := &layout{dir: dir, options: options, tokens: map[string]string{}}
	var err error
	if l.authority, err = pki.NewAuthority("kubehold realstack"); err != nil {
		return nil, err
	}
	p := &l.ports
	err = freePorts(&p.etcd, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler, &p.jobSetHealth,
		&p.jobSetWebhook, &p.trainerHealth, &p.trainerWebhook, &p.kueueHealth, &p.kueueWebhook, &p.kwok)
	if options.APIServerPort != 0 {
		p.apiServer = options.APIServerPort
	}
	return l, err
}

// freePorts fills in ports that nobody listens on. All are held until the last
// is known, so that no two are the same.
func freePorts(wanted ...*int) error {
	for _, port := range wanted {
		listener, err := net.Listen("tcp", loopback(0))
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// path is a file or folder of a component.
func (l *layout) path(c Component, elements ...string) string {
	return filepath.Join(append([]string{l.dir, string(c)}, elements...)...)
}

func (l *layout) logFile(c Component) string { return l.path(c, "log") }

// server is the URL of kube-apiserver.
func (l *layout) server() string { return "https://" + loopback(l.ports.apiServer) }

// makeRoom makes the folders of a component, with a server certificate and the
// kubeconfig by which it reaches kube-apiserver.
func (l *layout) makeRoom(p plan) error {
	for _, dir := range []string{l.path(p.component, "tmp"), l.certDir(p.component)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	cert, key := l.certFiles(p.component)
	if err := l.authority.WriteServer(string(p.component), cert, key); err != nil {
		return err
	}
	if p.user == "" {
		return nil
	}
	return l.writeKubeconfig(l.kubeconfig(p.component), p.user)
}

func (l *layout) kubeconfig(c Component) string { return l.path(c, "kubeconfig") }

// certDir is the folder of the component's server certificate. The controllers'
// libraries look for it below their folder for temporary files.
func (l *layout) certDir(c Component) string {
	return l.path(c, "tmp", "k8s-webhook-server", "serving-certs")
}

func (l *layout) certFiles(c Component) (cert, key string) {
	return filepath.Join(l.certDir(c), "tls.crt"), filepath.Join(l.certDir(c), "tls.key")
}

// environment is all that a component sees of the world.
func (l *layout) environment(p plan) []string {
	env := []string{
		"HOME=" + l.path(p.component),
		"TMPDIR=" + l.path(p.component, "tmp"),
		"KUBECONFIG=" + l.kubeconfig(p.component),
	}
	if p.env != nil {
		env = append(env, p.env(l)...)
	}
	return env
}

// addUser gives a user a token.
func (l *layout) addUser(name string) error {
	if name == "" || l.tokens[name] != "" {
		return fmt.Errorf("user name %q is empty or taken", name)
	}
	l.tokens[name] = rand.Text()
	return nil
}

// writeTokens writes the file by which kube-apiserver knows its users. Those in
// masters may do everything.
func (l *layout) writeTokens(path string, masters map[string]bool) error {
	var text strings.Builder
	table := csv.NewWriter(&text)
	for user, token := range l.tokens {
		row := []string{token, user, user}
		if masters[user] {
			row = append(row, mastersGroup)
		}
		if err := table.Write(row); err != nil {
			return err
		}
	}
	table.Flush()
	return errors.Join(table.Error(), os.WriteFile(path, []byte(text.String()), 0o600))
}

// restConfig is a user's way to kube-apiserver.
func (l *layout) restConfig(user string) (*rest.Config, error) {
	token, known := l.tokens[user]
	if !known {
		return nil, fmt.Errorf("the stack has no user %q", user)
	}
	return &rest.Config{
		Host:            l.server(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: l.authority.PEM},
	}, nil
}

func (l *layout) writeKubeconfig(path, user string) error {
	const name = "realstack"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: l.server(), CertificateAuthorityData: l.authority.PEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: l.tokens[user]}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}
