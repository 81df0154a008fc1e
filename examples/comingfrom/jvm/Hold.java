import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.time.Duration;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryOneTime;
import org.postgresql.ds.PGSimpleDataSource;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A process that runs the programs of Before and After when it is told to:
 *
 * <pre>Hold KIND ADDRESS</pre>
 *
 * A line is the name of a lock. It says "held" when it has it, gives it back at the next
 * line, and says "free".
 */
public class Hold {
	private static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));

	interface Program {
		void run(String name) throws Throwable;
	}

	public static void main(String[] args) throws Throwable {
		Program program = open(args[0], args[1]);
		System.out.println("ready");
		for (String name = in.readLine(); name != null; name = in.readLine()) {
			program.run(name);
			System.out.println("free");
		}
		System.exit(0); // whatever threads the libraries leave
	}

	static void work() {
		System.out.println("held");
		try {
			in.readLine();
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		}
	}

	static Program open(String kind, String address) {
		switch (kind) {
			case "redisson":
				RedissonClient redisson = redisson(address);
				return name -> Before.redisson(redisson, name, Hold::work);
			case "curator":
				CuratorFramework curator = curator(address);
				return name -> Before.curator(curator, name, Hold::work);
			case "dlock": // at the address in DLOCK_URL
				return name -> After.dlock(name, Hold::work);
			default:
				LockProvider provider = shedlock(address);
				return name -> {
					while (!Before.shedlock(provider, name, Duration.ofMinutes(1), Duration.ofMillis(5), Hold::work)) {
						Thread.sleep(5);
					}
				};
		}
	}

	static RedissonClient redisson(String address) {
		Config config = new Config().setThreads(2).setNettyThreads(2);
		config.useSingleServer().setAddress("redis://" + address);
		return Redisson.create(config);
	}

	static CuratorFramework curator(String address) {
		CuratorFramework curator = CuratorFrameworkFactory.newClient(address, new RetryOneTime(100));
		curator.start();
		return curator;
	}

	static LockProvider shedlock(String address) {
		return new JdbcLockProvider(source(address));
	}

	static DataSource source(String address) {
		PGSimpleDataSource source = new PGSimpleDataSource();
		source.setUrl("jdbc:postgresql://" + address + "/postgres?user=postgres");
		return source;
	}
}
